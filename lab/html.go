package lab

// HTML is TODO.
func (r *Report) HTML() []byte { return nil }
