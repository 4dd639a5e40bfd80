package counts

// AnswerOf is the Answer that follows from the verdicts of asks.
func AnswerOf(asks []Ask) (d Answer) {
	d.strictest(asks)
	return d
}
