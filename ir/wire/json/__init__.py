"""The JSON form of Programs: what it says (`json_form`), its text and its readers and writers."""
