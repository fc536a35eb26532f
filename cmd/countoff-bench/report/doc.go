// Package report makes of the figures of many runs what people want to know: medians,
// ratios inside each round, and whether goals are met. It is pure.
package report
