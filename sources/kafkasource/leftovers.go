package kafkasource

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource/internal/prompt"
	"github.com/countoff/countoff/sources/progress"
)

// leftovers reads again the records that earlier owners carried past the base, and
// buries those that nobody may start: what ended its peers too often, and what the
// topic does not have any more. Opening has just counted the last crash.
func (s *Source) leftovers(ctx context.Context, g partition.Grant, tok partition.Token, log bounds, f *progress.Found) ([]*kgo.Record, error) {
	wanted := slices.Clone(f.Lifted)
	for pos, t := range f.Tried {
		if t.Crashes >= s.cfg.CrashLimit && pos >= f.Base {
			wanted = append(wanted, pos)
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	slices.Sort(wanted)
	read, err := prompt.Call(ctx, func() (map[int64]*kgo.Record, error) { return s.recall(ctx, int32(g.ID), log, wanted) })
	if err != nil {
		return nil, err
	}
	lifted := slices.Clone(f.Lifted)
	for _, pos := range wanted {
		t := f.Tried[pos]
		r, d := read[pos], death{attempts: t.Tries, crashes: t.Crashes, first: t.FirstError}
		switch {
		case r == nil && pos >= log.start && pos < log.end:
			// Nothing is out of range: a newer record of its key is in the log.
			d.reason = fmt.Sprintf("the topic %s is compacted and has not got it any more: a newer record of its key is there", s.cfg.Topic)
			r, d.gone = &kgo.Record{Partition: int32(g.ID), Offset: pos}, true
		case r == nil && s.cfg.OutOfRange == Fail:
			return nil, &OutOfRangeError{Topic: s.cfg.Topic, Grant: g, Base: pos, Start: log.start, End: log.end, Policy: Fail}
		case r == nil:
			d.reason = fmt.Sprintf("the topic %s has not got it any more: it was open for longer than records are kept", s.cfg.Topic)
			r, d.gone = &kgo.Record{Partition: int32(g.ID), Offset: pos}, true
		case t.Crashes >= s.cfg.CrashLimit:
			d.reason = fmt.Sprintf("its peer died %d times while it ran alone", t.Crashes)
		default:
			continue
		}
		if err := s.end(ctx, g, tok, f, r, d); err != nil {
			return nil, err
		}
		delete(read, pos)
	}
	var records []*kgo.Record
	for _, pos := range lifted {
		if r := read[pos]; r != nil {
			records = append(records, r)
		}
	}
	return records, nil
}

// end makes a dead letter of an open record, right after Open.
func (s *Source) end(ctx context.Context, g partition.Grant, tok partition.Token, f *progress.Found, r *kgo.Record, d death) error {
	if _, err := s.grave.put(ctx, []*letter{{record: s.bury(r, d)}}); err != nil {
		return err
	}
	a, err := s.store.Settle(ctx, g, tok, &progress.Request{
		Seen: f.Writes, Read: f.Base, Base: f.Base, Alone: progress.None,
		Others: []progress.Verdict{{Position: r.Offset, Outcome: progress.Dead}},
	}, []progress.Content{{}})
	if err != nil {
		return err
	}
	f.Writes = a.Writes
	f.Ended(r.Offset)
	if s.cfg.Buried != nil {
		s.cfg.Buried(sources.Buried{Grant: g, Tasks: 1, Position: r.Offset, Reason: d.reason})
	}
	return nil
}

// recall reads single records, ascending. What the topic has not got any more is not
// in the result. It has a client of its own, one for all of them, since there is rarely
// anything to recall, and the other one reads on for everybody meanwhile.
func (s *Source) recall(ctx context.Context, p int32, log bounds, wanted []int64) (map[int64]*kgo.Record, error) {
	read := make(map[int64]*kgo.Record, len(wanted))
	rest := slices.DeleteFunc(slices.Clone(wanted), func(x int64) bool { return x < log.start || x >= log.end })
	if len(rest) == 0 {
		return read, nil
	}
	client, err := kgo.NewClient(append(s.cfg.options(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.cfg.Topic: {p: kgo.NewOffset().At(rest[0])}}),
	)...)
	if err != nil {
		return nil, fmt.Errorf("kafkasource: %w", err)
	}
	defer client.Close()
	for {
		records, err := polled(ctx, client)
		if err != nil {
			return nil, fmt.Errorf("kafkasource: read %s/%d from %d: %w", s.cfg.Topic, p, rest[0], explain(err))
		}
		last := rest[0]
		for _, r := range records {
			if i, found := slices.BinarySearch(rest, r.Offset); found && !r.Attrs.IsControl() {
				read[rest[i]] = r
			}
			last = max(last, r.Offset)
		}
		rest = slices.DeleteFunc(rest, func(x int64) bool { return x <= last })
		if len(rest) == 0 {
			return read, nil
		}
		if rest[0] > last+1 { // else it reads on
			client.SetOffsets(map[string]map[int32]kgo.EpochOffset{s.cfg.Topic: {p: {Epoch: -1, Offset: rest[0]}}})
		}
	}
}

// polled returns some records; there are some.
func polled(ctx context.Context, client *kgo.Client) ([]*kgo.Record, error) {
	for {
		fetches := client.PollFetches(ctx)
		if records := fetches.Records(); len(records) > 0 {
			return records, nil
		}
		if err := fetches.Err(); err != nil {
			return nil, err
		}
	}
}
