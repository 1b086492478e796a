// Package runtime runs containers: it creates, starts, supervises and deletes
// them, and returns a Result for every run under a policy.
package runtime
