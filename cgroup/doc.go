package cgroup
