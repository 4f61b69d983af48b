"""The shell of a rank: blobs, broker, beats; everything that waits."""
