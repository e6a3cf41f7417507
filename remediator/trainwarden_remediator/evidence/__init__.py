"""What is written down of the box before anything is done to it, for whoever asks why later."""
