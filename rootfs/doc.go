package rootfs
