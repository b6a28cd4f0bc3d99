"""Product B: may a new kernel replace the old one, bit for bit and by rules frozen before anyone measured?"""
