"""What the model will see: sections, the assembled text, its tokens, its price and its share."""
