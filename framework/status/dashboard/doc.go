// Package dashboard shows names in a browser, live: which partition is whose, who takes part, what
// waits and where, what is wrong, and what happened. `countoff dashboard` is a program around it; a
// service puts the same [Board] under a path of its own server.
//
// A page is made here, whole, and read without scripts too. What has changed since is sent
// as the pieces of the page that are others now (server-sent events), and a short script puts them in
// their places. The same look is there as JSON and as text.
//
// Looks are shared: however many people look at a name, the store is asked once for all of
// them, and nothing is asked while nobody looks.
package dashboard
