// Package ledgertest proves that an implementation of transition.Ledger keeps the
// rules: each clause is a sentence, runs in a ledger of its own and fails when the
// rule it names is broken. memledger is the reference; an implementation over a
// real store runs the same clauses with a [Harness] of its own.
package ledgertest
