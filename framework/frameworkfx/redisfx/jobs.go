package redisfx

import (
	"cmp"
	"errors"
	"slices"

	"go.uber.org/fx"

	"github.com/countoff/countoff/framework"
	"github.com/countoff/countoff/framework/frameworkfx"
	"github.com/countoff/countoff/sources/jobs"
	"github.com/countoff/countoff/sources/redissource"
)

// Jobs gives consumer periodic tasks, whose handlers are those of their types. The consumer's
// source must be Redis; all its peers are given the same jobs.
func Jobs(consumer string, entries ...jobs.Entry) fx.Option {
	return fx.Options(
		fx.Provide(fx.Annotate(func() jobList { return jobList{consumer, entries} }, fx.ResultTags(`group:"countoff.redisfx.jobs"`))),
		// Among the health checks it is listed with all else that is wrong with the consumer.
		fx.Provide(fx.Annotate(func(all []frameworkfx.Source) []frameworkfx.Health { return unfired(consumer, all) },
			fx.ParamTags(frameworkfx.SourceGroup), fx.ResultTags(`group:"countoff.health,flatten"`))),
	)
}

// Job gives consumer one periodic task and its handler, which is as in frameworkfx.Handle.
func Job(consumer string, entry jobs.Entry, h any) fx.Option {
	return fx.Options(Jobs(consumer, entry), frameworkfx.Handle(consumer, cmp.Or(entry.Type, entry.Name), h))
}

type jobList struct {
	consumer string
	entries  []jobs.Entry
}

func (g given) jobsOf(consumer string, all []jobs.Entry) []jobs.Entry {
	all = slices.Clone(all)
	for _, l := range g.Jobs {
		if l.consumer == consumer {
			all = append(all, l.entries...)
		}
	}
	return all
}

// unfired is no check, or one with an error if the source of consumer is none that fires jobs: they
// would never run, and nobody would say so.
func unfired(consumer string, all []frameworkfx.Source) []frameworkfx.Health {
	if slices.ContainsFunc(all, func(s frameworkfx.Source) bool {
		_, ok := s.Source.(*redissource.Source)
		return s.Consumer == consumer && (ok || s.Err != nil) // what is wrong with a source is listed elsewhere
	}) {
		return nil
	}
	return []frameworkfx.Health{{Consumer: consumer, Err: errors.New("it has jobs, and no source that fires them: see redisfx.Source")}}
}

// ticked is the event of what the source says.
func ticked(name string, e redissource.Ticked) framework.Event {
	w := framework.Where{Consumer: name, Grant: e.Grant}
	if e.Err != nil {
		return framework.JobsFailed{Where: w, Err: e.Err, Again: e.Again}
	}
	return framework.JobTicked{Where: w, Job: e.Job, Tick: e.Tick, Late: e.Late, Fired: e.Fired, Passed: e.Passed}
}
