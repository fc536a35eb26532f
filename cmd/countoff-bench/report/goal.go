package report

// A Goal is what a measure of a contestant should come to.
type Goal struct {
	ID   string
	What string
	// Tag and Measure say what is looked at.
	Tag, Measure string
	// Per is a contestant whose same measure of the same round it is divided by.
	// Empty: By; of that zero, it is taken as it is.
	Per string
	By  float64
	// Least or Most is the goal; the other one is zero.
	Least, Most float64
}

// A Verdict says how a goal stands. Without a figure it is neither met nor missed.
type Verdict struct {
	Goal
	Spread
	Met bool // by the median
}

// Judge compares the samples with goals.
func Judge(goals []Goal, all Samples) []Verdict {
	verdicts := make([]Verdict, len(goals))
	for i, g := range goals {
		figures := all.Of(g.Tag, g.Measure)
		switch {
		case g.Per != "":
			figures = Ratios(figures, all.Of(g.Per, g.Measure))
		case g.By != 0:
			for round := range figures {
				figures[round] /= g.By
			}
		}
		v := Verdict{Goal: g, Spread: spreadOf(figures)}
		v.Met = v.N > 0 && (g.Most == 0 || v.Median <= g.Most) && (g.Least == 0 || v.Median >= g.Least)
		verdicts[i] = v
	}
	return verdicts
}
