package errorformat

import (
	"mime"
	"strconv"
	"strings"
)

// longestAccept and mostRanges bound the Accept that is read, in bytes and in elements. Browsers send up to
// 200 bytes with 8 elements. A refused client can repeat its request at will.
const (
	longestAccept = 2000
	mostRanges    = 32
)

// problemType is that of the usual document.
const problemType = "application/problem+json"

// Choose returns the body for a client with these lines of the header Accept; nil: the usual document.
// It is the body of the highest quality; of several, one that Accept names rather than one that only a
// range covers, such as */*; else the first. If none is accepted, it is the first. The usual document
// is for clients that prefer its own type by name.
func (f *Format) Choose(accept []string) *Body {
	if f == nil || len(f.parts.Bodies) == 0 {
		return nil
	}
	line := strings.Join(accept, ",")
	if line == "" || line == "*/*" || len(line) > longestAccept || strings.Count(line, ",") >= mostRanges {
		return &f.parts.Bodies[0]
	}
	ranges := rangesOf(line)
	chosen, best := &f.parts.Bodies[0], fit{}
	hasProblem := false
	for i := range f.parts.Bodies {
		hasProblem = hasProblem || f.parts.Bodies[i].Type == problemType
		if fits := ranges.fit(f.parts.Bodies[i].Type); fits.isOver(best) {
			chosen, best = &f.parts.Bodies[i], fits
		}
	}
	if usual := ranges.fit(problemType); !hasProblem && usual.exact == named && usual.isOver(best) {
		return nil
	}
	return chosen
}

// fit is how well a type fits an Accept.
type fit struct {
	quality float64 // 0: it is not accepted
	exact   int
}

// How exactly a range of Accept matches a type.
const (
	anyType = 1 + iota // */*
	anySub             // text/*
	named
)

func (f fit) isOver(other fit) bool {
	return f.quality > other.quality || f.quality == other.quality && f.quality > 0 && f.exact > other.exact
}

// mediaRange is an element of Accept.
type mediaRange struct {
	main, sub string // * : any
	quality   float64
}

type mediaRanges []mediaRange

// rangesOf reads Accept. It leaves out invalid media ranges, and parameters except q.
func rangesOf(line string) (all mediaRanges) {
	for _, one := range elements(line) {
		mediaType, parameters, err := mime.ParseMediaType(one)
		main, sub, both := strings.Cut(mediaType, "/")
		if err != nil || !both || main == "*" && sub != "*" {
			continue
		}
		r := mediaRange{main, sub, 1}
		if q, ok := parameters["q"]; ok {
			quality, err := strconv.ParseFloat(q, 64)
			if err != nil || !(quality >= 0 && quality <= 1) {
				continue
			}
			r.quality = quality
		}
		all = append(all, r)
	}
	return all
}

// elements splits a list at the commas that are not within quotes.
func elements(line string) (all []string) {
	begin, quoted := 0, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			all = append(all, line[begin:i])
			begin = i + 1
		}
	}
	return append(all, line[begin:])
}

// fit returns how well a type fits: by the most exact ranges, and of these by the one with the highest
// quality.
func (all mediaRanges) fit(mediaType string) (best fit) {
	main, sub, _ := strings.Cut(mediaType, "/")
	for _, r := range all {
		f := fit{quality: r.quality}
		switch {
		case r.main == main && r.sub == sub:
			f.exact = named
		case r.main == main && r.sub == "*":
			f.exact = anySub
		case r.main == "*":
			f.exact = anyType
		default:
			continue
		}
		if f.exact > best.exact || f.exact == best.exact && f.quality > best.quality {
			best = f
		}
	}
	return best
}
