// Package play is a play: websites, peers that come, leave, are killed and stand still, and
// somebody else who changes the list. The website says whether two had a site at once; the peers
// are processes of their own, so that a kill is a kill.
package play
