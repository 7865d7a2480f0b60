"""Files that hold other files, and words with times between them: archives, mail, subtitles."""
