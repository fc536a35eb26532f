// Package frameworkfx runs consumers in an fx application. It decides nothing: it
// collects what the application provides, makes a [framework.Runtime] of it, and
// starts and stops that with the application.
//
//	os.Exit(frameworkfx.Run(
//		redisfx.Source("mail-sender", redisfx.Config{URL: "redis://localhost:6379"}),
//		frameworkfx.Handle("mail-sender", "welcome", NewWelcome),
//		frameworkfx.Otherwise("mail-sender", NewAnyMail),
//		fx.Provide(NewSMTPClient),
//	))
//
// Handlers, sources, units, middleware, settings, observers and health checks are joined by
// value groups; the functions of this package put them there, and so can constructors of the
// application, with the group names in [HandlerGroup] and the others. Everything
// that is wrong with what was provided (a consumer without a handler or a source,
// two handlers for one type, numbers out of range, budgets that do not fit) is one
// error at start that lists it all: a [StartError].
//
// [Run] owns the signals and the stop timeout. An application that calls fx's Run itself must
// set fx.StopTimeout to at least the [framework.Runtime.StopTimeout] of its consumers and units,
// 28 s by default: fx's own default of 15 s is less, and when it ends, draining turns hard. If a
// hook fails at the start, fx stops what it has started within what is left of fx.StartTimeout: then, too, draining
// turns hard. Of an application whose time to start was over fx stops nothing that it has started, nor does its Stop
// after that: call the Stop of the [framework.Runtime].
package frameworkfx
