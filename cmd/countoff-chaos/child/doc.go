// Package child starts processes that die with their parent, whatever way it ends.
package child
