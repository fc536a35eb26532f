//go:build !race

package progresstest

const raceDetector = false
