package zapobserver

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/transition"
)

// coordinated writes what the coordinator tells. Of grants the consumer tells more:
// here they are for those who debug a hand-over.
func (o *observer) coordinated(wrapped framework.Coordinated) {
	if !o.lease(wrapped.Consumer, wrapped.Event) && !o.grants(wrapped.Consumer, wrapped.Event) && wrapped.Event != nil {
		o.log.DPanic("an event that the observer does not know", zap.Any("event", wrapped.Event))
	}
}

// A silence is a row of calls that were not answered.
type silence struct {
	calls       int
	since, told time.Time
	why         string // as it was told last
}

// tellAgain is how long a silence that was told is not told again.
const tellAgain = 10 * time.Second

// unanswered counts a call and returns the level at which it is told: another reason why is told
// at once.
func (o *observer) unanswered(consumer, why string) (zapcore.Level, silence) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	s := o.silences[consumer]
	if s == nil {
		s = &silence{since: now}
		o.silences[consumer] = s
	}
	s.calls++
	if s.calls > 1 && s.why == why && now.Sub(s.told) < tellAgain {
		return zapcore.DebugLevel, *s
	}
	s.told, s.why = now, why
	return zapcore.WarnLevel, *s
}

// answered ends a silence and returns it; nil if there was none.
func (o *observer) answered(consumer string) *silence {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.silences[consumer]
	delete(o.silences, consumer)
	return s
}

// lease writes the events of the lease and the rolls; it reports whether e is one.
func (o *observer) lease(consumer string, e transition.Event) bool {
	log := o.log.With(name(consumer))
	switch e := e.(type) {
	case transition.Joined:
		log.Info("joined", took(e.Took), zap.String("peer", e.Peer), zap.String("session", string(e.Session)))
	case transition.Renamed:
		log.Info("another peer has the id: this one takes another", zap.String("id", e.Former), zap.String("peer", e.Peer))
	case transition.Synced:
		fields := []zap.Field{took(e.Took), zap.Uint64("count", e.Count), zap.Int("mine", e.Mine)}
		if s := o.answered(consumer); s != nil {
			log.Info("synced again: the ledger answers", append(fields, zap.Int("failed", s.calls), zap.Duration("after", time.Since(s.since)))...)
		} else {
			log.Debug("synced", fields...)
		}
	case transition.SyncFailed:
		level, s := o.unanswered(consumer, "") // the errors have the ports of their connections in them
		log.Log(level, "sync failed", zap.Error(e.Err), took(e.Took), zap.Int("failed", s.calls), zap.Duration("for", time.Since(s.since)))
	case transition.ConfigRefused:
		log.Error("refused: the name is in use with another configuration", zap.Error(e.Err))
	case transition.Lapsed:
		log.Error("the lease may have run out: everything in work is aborted", zap.Int("grants", e.Grants))
	case transition.GraceOpened:
		log.Warn("the store is new, restarted or forgot: nobody gains a partition for a while (countoff init spares a new name this)", zap.Duration("left", e.Left))
	case transition.Paused:
		log.Warn("the name is paused: what runs ends, and nothing begins (countoff status says since when and why, countoff resume ends it)")
	case transition.Resumed:
		log.Info("the name is resumed")
	case transition.Dismissed:
		log.Warn("this peer is drained: others take over what it has (countoff status says since when and why, countoff recall ends it)")
	case transition.Recalled:
		log.Info("this peer is recalled: it gets its share")
	case transition.HintsLost:
		log.Warn("no hints from the store: changes are noticed with the next beat", zap.Error(e.Err), again(e.Again))
	case transition.Declared:
		level := zapcore.InfoLevel
		if !e.Well {
			level = zapcore.WarnLevel
		}
		log.Log(level, "says of itself", zap.Int("weight", e.Weight), zap.Bool("well", e.Well))
	case transition.Left:
		level := zapcore.InfoLevel
		if len(e.Stuck)+len(e.Unheard) > 0 {
			level = zapcore.ErrorLevel
		}
		log.Log(level, "left", took(e.Took), zap.Stringers("stuck", e.Stuck), zap.Int("unheard", len(e.Unheard)))
	case transition.RollSeen:
		units := 0 // ingress lists, which are wished for like partitions
		for _, id := range e.View.Wish {
			if id.IsUnit() {
				units++
			}
		}
		fields := []zap.Field{zap.Uint64("version", e.View.Version), zap.Int("index", e.View.Index),
			zap.Int("replicas", e.View.Replicas), zap.Int("partitions", len(e.View.Wish)-units)}
		if units > 0 {
			fields = append(fields, zap.Int("units", units))
		}
		log.Info("new view", fields...)
	case transition.BarrierClosed:
		log.Info("a newer roll: everything stops until all peers have", zap.Uint64("version", e.Version))
	case transition.Sealed:
		log.Info("sealed a roll", zap.Uint64("on", e.On), zap.Int("replicas", e.Replicas), took(e.Took))
	case transition.SealFailed:
		log.Debug("a roll was not sealed", zap.Error(e.Err))
	case transition.StrategyFailed:
		log.Error("the strategy broke its contract: sticky shared out what it left", zap.String("strategy", e.Strategy), zap.String("what", e.What))
	default:
		return false
	}
	return true
}

// grants writes the events of grants; it reports whether e is one.
func (o *observer) grants(consumer string, e transition.Event) bool {
	debug := func(message string, g partition.Grant, fields ...zap.Field) {
		o.at(zapcore.DebugLevel, message, framework.Where{Consumer: consumer, Grant: g}, fields...)
	}
	switch e := e.(type) {
	case transition.Served:
		debug("granted", e.Grant)
	case transition.Draining:
		debug("asked to drain", e.Grant)
	case transition.DrainOverdue:
		debug("the drain is overdue", e.Grant, took(e.Took))
	case transition.Aborted:
		debug("taken away", e.Grant, zap.NamedError("cause", e.Cause))
	case transition.Drained:
		debug("nothing of it runs", e.Grant, took(e.Took))
	case transition.Released:
		debug("released", e.Grant, took(e.Took))
	default:
		return false
	}
	return true
}
