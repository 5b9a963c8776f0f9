// Package rank is how hits of a search are weighed, for both stores.
package rank

import (
	"math"
	"sort"
	"time"
)

// Candidates is how many matches a search weighs at most. Weighing costs SQLite 2 to 3 µs each on the machine it
// was measured on, so this keeps a search below 20 ms whatever the size of the workspace.
const Candidates = 3000

// Weights of the parts of an item: a word in its key or a tag says more than one in its text.
const (
	TextWeight = 1.0
	KeyWeight  = 2.0
	TagWeight  = 1.5
)

// Recency raises a score by up to RecencyWeight of it: by all of that for an item of this moment, half of
// it after RecencyHalf, towards none for ever after. It settles close matches and never beats a clear one.
const (
	RecencyWeight = 0.5
	RecencyHalf   = 7 * 24 * time.Hour
)

// Recency is the factor for an item of this age.
func Recency(age time.Duration) float64 {
	return 1 + RecencyWeight/(1+float64(max(age, 0))/float64(RecencyHalf))
}

// Selective picks the terms to search for: those in the fewest items, the rarest first, until together
// they are in as many items as are weighed. What is then left out is in so many items that it would hardly
// move a score. The rarest is always taken; terms in no item never are.
func Selective(terms []string, docs map[string]int) []string {
	sorted := make([]string, 0, len(terms))
	for _, t := range terms {
		if docs[t] > 0 {
			sorted = append(sorted, t)
		}
	}
	sort.SliceStable(sorted, func(a, b int) bool { return docs[sorted[a]] < docs[sorted[b]] })
	total := 0
	for n, t := range sorted {
		if total += docs[t]; n > 0 && total > Candidates {
			return sorted[:n]
		}
	}
	return sorted
}

// BM25 with the constants of SQLite's full-text search, so that both stores weigh alike.
type BM25 struct {
	Items  int            // in the workspace
	Docs   map[string]int // by term: how many items have it
	Length float64        // mean length of items, in terms
}

const (
	k1 = 1.2
	b  = 0.75
)

// Score is the weight of an item of this length, in which the terms occur freq times.
func (m BM25) Score(freq map[string]float64, length float64) float64 {
	score := 0.0
	for t, f := range freq {
		df := float64(m.Docs[t])
		n := max(float64(m.Items), df)
		idf := max(math.Log((n-df+0.5)/(df+0.5)), 1e-6)
		score += idf * f * (k1 + 1) / (f + k1*(1-b+b*length/max(m.Length, 1)))
	}
	return score
}
