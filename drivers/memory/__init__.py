"""Memory of a device: buffers, pools, what stays resident, copies."""
