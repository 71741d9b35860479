# Needs no provider and no network: terraform_data is built in, and what it does is a line in a file.

variable "target" {
  type        = string
  description = "The file that each apply writes a line to"
}

variable "ships" {
  type    = map(string)
  default = { aurora = "coffee", meridian = "timber" }
}

resource "terraform_data" "ship" {
  for_each = var.ships
  input    = { name = each.key, cargo = each.value }

  triggers_replace = [each.value]

  provisioner "local-exec" {
    command = "echo \"$SHIP carries $CARGO\" >> \"$TARGET\""
    environment = {
      SHIP   = each.key
      CARGO  = each.value
      TARGET = var.target
    }
  }
}

output "ships" {
  value = { for name, ship in terraform_data.ship : name => ship.output.cargo }
}
