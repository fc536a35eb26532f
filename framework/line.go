package framework

// A line is lanes in the order in which they get their turn. A lane that has had its turn, or
// has become ready again, goes to the end: anywhere before it, a few lanes with one ready task
// at a time would be served for ever, and the others never.
type line struct{ first, last *lane }

// join puts l at the end, unless it stands in the line.
func (q *line) join(l *lane) {
	if l.phase.queued {
		return
	}
	l.phase.queued = true
	if q.first == nil {
		q.first = l
	} else {
		q.last.behind = l
	}
	q.last = l
}

// leave takes the first lane out.
func (q *line) leave() {
	l := q.first
	q.first, l.behind, l.phase.queued = l.behind, nil, false
	if q.first == nil {
		q.last = nil
	}
}
