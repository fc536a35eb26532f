package kafkasource

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources"
	"github.com/countoff/countoff/sources/kafkasource/internal/prompt"
	"github.com/countoff/countoff/sources/progress"
)

// A corpse is a task that nobody may start, and whose letter the dead topic did not take when its
// partition was opened.
type corpse struct {
	letter
	pos    int64
	reason string
	taken  bool // the log has its position
}

// leftovers reads again the records that earlier owners carried past the base, and
// buries those that nobody may start: what ended its peers too often, and what the
// topic does not have any more. Opening has just counted the last crash. What the dead
// topic does not take is left to the stream, which goes on with all else.
func (s *Source) leftovers(ctx context.Context, g partition.Grant, tok partition.Token, log bounds, f *progress.Found) ([]*kgo.Record, []*corpse, error) {
	wanted := slices.Clone(f.Lifted)
	for pos, t := range f.Tried {
		if t.Crashes >= s.cfg.CrashLimit && pos >= f.Base {
			wanted = append(wanted, pos)
		}
	}
	if len(wanted) == 0 {
		return nil, nil, nil
	}
	slices.Sort(wanted)
	read, err := prompt.Call(ctx, func() (map[int64]*kgo.Record, error) { return s.recall(ctx, int32(g.ID), log, wanted) })
	if err != nil {
		return nil, nil, err
	}
	lifted := slices.Clone(f.Lifted)
	var corpses []*corpse
	var buried sources.Buried
	defer func() {
		if buried.Tasks > 0 && s.cfg.Buried != nil {
			s.cfg.Buried(buried)
		}
	}()
	for _, pos := range wanted {
		t := f.Tried[pos]
		r, d := read[pos], death{attempts: t.Attempts(), crashes: t.Crashes, first: t.FirstError}
		switch {
		case r == nil && pos >= log.start && pos < log.end:
			// Nothing is out of range: a newer record of its key is in the log.
			d.reason = s.compactedAway()
			r, d.gone = &kgo.Record{Partition: int32(g.ID), Offset: pos}, true
		case r == nil && s.cfg.OutOfRange == Fail:
			return nil, nil, &OutOfRangeError{Topic: s.cfg.Topic, Grant: g, Base: pos, Start: log.start, End: log.end, Policy: Fail}
		case r == nil:
			d.reason = fmt.Sprintf("the topic %s has not got it any more: it was open for longer than records are kept", s.cfg.Topic)
			r, d.gone = &kgo.Record{Partition: int32(g.ID), Offset: pos}, true
		case t.Crashes >= s.cfg.CrashLimit:
			d.reason = fmt.Sprintf("its peer died %d times while it ran alone", t.Crashes)
		default:
			continue
		}
		delete(read, pos)
		c := &corpse{letter: letter{record: s.bury(apart(r), d)}, pos: pos, reason: d.reason}
		if len(corpses) == 0 { // else the dead topic takes nothing now
			if err := s.put(ctx, g, c); err != nil && ctx.Err() != nil {
				return nil, nil, err
			}
		}
		if !c.buried {
			corpses = append(corpses, c)
			continue
		}
		if err := s.end(ctx, g, tok, f, c); err != nil {
			return nil, nil, err
		}
		buried.Add(sources.Buried{Grant: g, Tasks: 1, Position: c.pos, Reason: c.reason})
	}
	var records []*kgo.Record
	for _, pos := range lifted {
		if r := read[pos]; r != nil {
			records = append(records, r)
		}
	}
	return records, corpses, nil
}

func (s *Source) compactedAway() string {
	return fmt.Sprintf("the topic %s is compacted and has not got it any more: a newer record of its key is there", s.cfg.Topic)
}

// miss finds what was tried and is open, but is not there where the record at pos comes next: nobody may
// start it. The caller holds the lock.
func (s *stream) miss(pos int64) {
	for p, t := range s.tried {
		if p < s.Log.Read() || p >= pos || slices.ContainsFunc(s.ahead, func(c *corpse) bool { return c.pos == p }) {
			continue
		}
		d := death{reason: s.source.compactedAway(), attempts: t.Attempts(), crashes: t.Crashes, first: t.FirstError, gone: true}
		c := &corpse{letter: letter{record: s.source.bury(&kgo.Record{Partition: int32(s.Grant.ID), Offset: p}, d)}, pos: p, reason: d.reason}
		s.corpses, s.ahead = append(s.corpses, c), append(s.ahead, c)
	}
	byPosition := func(a, b *corpse) int { return cmp.Compare(a.pos, b.pos) }
	slices.SortFunc(s.corpses, byPosition)
	slices.SortFunc(s.ahead, byPosition)
}

// put puts c on the dead topic, right after Open, or tells that nobody else is held up by it.
func (s *Source) put(ctx context.Context, g partition.Grant, c *corpse) error {
	_, err := s.grave.put(ctx, []*letter{&c.letter})
	if c.buried = err == nil; !c.buried && ctx.Err() == nil {
		s.warn(fmt.Errorf("kafkasource: %s/%v: what nobody may start waits for the dead topic, and the rest goes on: %w", s.cfg.Topic, g.ID, err))
	}
	return err
}

// end says that c, whose letter is written, is dead, right after Open.
func (s *Source) end(ctx context.Context, g partition.Grant, tok partition.Token, f *progress.Found, c *corpse) error {
	a, err := s.store.Settle(ctx, g, tok, &progress.Request{
		Seen: f.Writes, Read: f.Base, Base: f.Base, Alone: progress.None,
		Others: []progress.Verdict{{Position: c.pos, Outcome: progress.Dead}},
	}, []progress.Content{{}})
	if err != nil {
		return err
	}
	f.Writes = a.Writes
	f.Ended(c.pos)
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
