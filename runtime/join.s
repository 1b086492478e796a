// This file is empty on purpose: a package with assembly may declare functions
// without a body, which the linknames in join.go need.
