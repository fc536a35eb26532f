// Package website is a website to be watched, and what watches over the watchers: it notes who
// visits which of its sites when, refuses visits under an older token than it has seen, and
// notices two owners.
package website
