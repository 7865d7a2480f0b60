"""Files that hold other files or words in a packed form: archives, mail, subtitles, RTF, PDF and office files."""
