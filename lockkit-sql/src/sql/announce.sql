UPDATE {table} SET waiting_until = {now} + {window} WHERE name = {mine};
