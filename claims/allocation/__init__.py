"""New claims and their slots: create, batch, bind, search, and the reasons why claims wait."""
