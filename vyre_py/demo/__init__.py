"""The main job: a photograph, equalised and sharpened by Programs."""
