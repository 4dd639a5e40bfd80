package counts

import "sync/atomic"

// An arena holds blocks of numbers without pointers, addressed by number, so that the garbage
// collector looks only at pages. Blocks never move. The shard must be locked to allocate and free;
// the slot's lock guards the block itself.
type arena[T any] struct {
	pages  atomic.Pointer[[]page[T]] // readers see pages up to its length; nil: none
	open   [len(blockSizes)][]uint32 // per size, the pages with free blocks
	number [len(blockSizes)]int      // per size, the number of blocks
	vacant []uint32                  // released pages
}

// block is a page's number plus one, and an offset there. 0: none.
type block uint64

// blockSizes are the sizes of blocks in shared pages; a larger block has its own.
var blockSizes = [...]uint16{2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024}

const (
	pageBits = 10 // of the largest page's length
	ownPage  = -1
)

// page is an array of blocks of one size. First pages are small, for stores with few counts.
type page[T any] struct {
	data  []T
	size  int      // of a block
	class int      // the size's place in blockSizes, or ownPage
	free  []uint16 // offsets of free blocks
	place int      // in arena.open
}

func sizeFor(n int) (size, class int) {
	for c, size := range blockSizes {
		if int(size) >= n {
			return int(size), c
		}
	}
	return n, ownPage
}

// alloc returns a block for at least n numbers, all of which are zero.
func (a *arena[T]) alloc(n int) block {
	size, class := sizeFor(n)
	if class == ownPage {
		return blockOf(a.add(page[T]{data: make([]T, size), size: size, class: class}), 0)
	}
	if len(a.open[class]) == 0 {
		a.addPage(size, class)
	}
	open := a.open[class]
	i := open[len(open)-1]
	p := &(*a.pages.Load())[i]
	at := p.free[len(p.free)-1]
	if p.free = p.free[:len(p.free)-1]; len(p.free) == 0 {
		a.open[class] = open[:len(open)-1]
	}
	clear(p.data[at : int(at)+size])
	return blockOf(i, int(at))
}

// addPage adds a page of a quarter as many blocks as there are of the size.
func (a *arena[T]) addPage(size, class int) {
	blocks := min(max(2, a.number[class]/4), 1<<pageBits/size)
	p := page[T]{data: make([]T, blocks*size), size: size, class: class, free: make([]uint16, blocks), place: 0}
	for i := range p.free {
		p.free[i] = uint16((blocks - 1 - i) * size)
	}
	a.number[class] += blocks
	a.open[class] = append(a.open[class], a.add(p))
}

func (a *arena[T]) add(p page[T]) uint32 {
	var pages []page[T]
	if all := a.pages.Load(); all != nil {
		pages = *all
	}
	if n := len(a.vacant); n > 0 {
		i := a.vacant[n-1]
		a.vacant = a.vacant[:n-1]
		pages[i] = p
		return i
	}
	pages = append(pages, p)
	a.pages.Store(&pages)
	return uint32(len(pages) - 1)
}

func blockOf(page uint32, at int) block { return block(page+1)<<pageBits | block(at) }

func (a *arena[T]) at(b block) []T {
	p := &(*a.pages.Load())[b>>pageBits-1]
	at := int(b & (1<<pageBits - 1))
	return p.data[at : at+p.size : at+p.size]
}

// release frees a block, and its page if that is then empty.
func (a *arena[T]) release(b block) {
	i := uint32(b>>pageBits - 1)
	p := &(*a.pages.Load())[i]
	if p.class == ownPage {
		a.giveUp(i, p)
		return
	}
	if len(p.free) == 0 {
		p.place = len(a.open[p.class])
		a.open[p.class] = append(a.open[p.class], i)
	}
	p.free = append(p.free, uint16(b&(1<<pageBits-1)))
	if blocks := len(p.data) / p.size; len(p.free) == blocks {
		a.number[p.class] -= blocks
		a.close(p)
		a.giveUp(i, p)
	}
}

// close removes a page from those with free blocks.
func (a *arena[T]) close(p *page[T]) {
	open := a.open[p.class]
	last := open[len(open)-1]
	open[p.place] = last
	(*a.pages.Load())[last].place = p.place
	a.open[p.class] = open[:len(open)-1]
}

func (a *arena[T]) giveUp(i uint32, p *page[T]) {
	*p = page[T]{}
	a.vacant = append(a.vacant, i)
}
