package yamlnode

import (
	"cmp"
	"errors"
	"slices"
)

// Merge joins the problems of two readings of the same files: by file and place, and each problem
// once. Other errors stay as they are.
func Merge(a, b error) error {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	var files []*Error
	var others []error
	for _, e := range append(parts(a), parts(b)...) {
		wrong, ok := e.(*Error)
		if !ok {
			others = append(others, e)
			continue
		}
		i := slices.IndexFunc(files, func(f *Error) bool { return f.File == wrong.File })
		if i < 0 {
			files = append(files, wrong)
			continue
		}
		files[i] = files[i].with(wrong)
	}
	all := make([]error, 0, len(files)+len(others))
	for _, f := range files {
		all = append(all, f)
	}
	if all = append(all, others...); len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// parts are the errors that were joined into err, or err alone.
func parts(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func (e *Error) with(other *Error) *Error {
	all := slices.Concat(e.Problems, other.Problems)
	slices.SortStableFunc(all, byPlace)
	all = slices.Compact(all)
	told := min(len(all), maxProblems)
	return &Error{File: e.File, Problems: all[:told], More: len(all) - told + e.More + other.More}
}

func byPlace(a, b Problem) int {
	return cmp.Or(a.Line-b.Line, a.Column-b.Column)
}
