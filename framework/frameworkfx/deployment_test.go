package frameworkfx

import "testing"

func TestWhatAPeerBelongsTo(t *testing.T) {
	t.Setenv(DeploymentVariable, "")
	if d := Deployment(""); d == "" {
		t.Error("nobody has said it, and it is not the main package's path")
	}
	t.Setenv(DeploymentVariable, "blue")
	if d := Deployment(""); d != "blue" {
		t.Errorf("it is %q, the environment says blue", d)
	}
	if d := Deployment("green"); d != "green" {
		t.Errorf("it is %q, green is configured", d)
	}
}
