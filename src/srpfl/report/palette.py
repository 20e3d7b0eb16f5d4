"""The colours, dashes and marks of every plot and page."""

# Okabe and Ito's colours, with black and yellow (each invisible on one of the two grounds)
# replaced. The tests hold every pair apart for all kinds of colour vision, on both grounds.
LIGHT = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D", "#9E117A"]
DARK = ["#2D76E4", "#D24433", "#17E57E", "#DE8299", "#F7CB37", "#A7D1FC", "#F0F0F0", "#9A5690"]
# What grows along a scale, as C does: from dark to light, or from light to dark on dark ground.
LIGHT_STEPS = ["#2B1A5E", "#2C5C8A", "#1F8A7E", "#62A93C", "#B5AC00"]
DARK_STEPS = ["#F2E85C", "#9BD44B", "#45C08C", "#5AA0CC", "#8A6FD0"]
DASH = "7 4"  # waits for everyone; in SVG's notation
MARKS = ["", "o", "s", "^", "D"]  # beyond eight families; matplotlib's names
