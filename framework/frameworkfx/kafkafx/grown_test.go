package kafkafx

import (
	"strings"
	"testing"

	"github.com/countoff/countoff/sources/kafkasource"
)

// A consumer whose setting has a ledger of the application's own never asks for the one that its
// source would make, and a topic that grows has nobody to tell.
func TestGrownWithALedgerOfTheApplicationsOwn(t *testing.T) {
	var source kafkasource.Config
	(&told{name: "orders"}).listen(&source)
	if err := source.Grown(t.Context(), 12); err == nil || !strings.Contains(err.Error(), "Source.Grown") {
		t.Errorf("it says %v", err)
	}
}
