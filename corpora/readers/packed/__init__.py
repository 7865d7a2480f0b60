"""Files that hold other files, and words in a packed form: archives, mail, subtitles, RTF."""
