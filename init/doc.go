package sbxinit
