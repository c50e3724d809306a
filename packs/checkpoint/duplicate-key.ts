/**
 * The first key that an object in the JSON text holds twice, or null. JSON.parse keeps the last of two equal keys and says
 * nothing, so a header naming one tensor twice would hide the first. `text` must already have been parsed without error.
 */
export function findDuplicateKey(text: string): string | null {
  const open: (Set<string> | null)[] = [];
  let expectKey = false;
  for (let index = 0; index < text.length; index += 1) {
    switch (text.charAt(index)) {
      case '{':
        open.push(new Set());
        expectKey = true;
        break;
      case '[':
        open.push(null);
        expectKey = false;
        break;
      case '}':
      case ']':
        open.pop();
        expectKey = false;
        break;
      case ',':
        expectKey = open.at(-1) instanceof Set;
        break;
      case '"': {
        const end = stringEnd(text, index);
        const keys = open.at(-1);
        if (expectKey && keys instanceof Set) {
          const key = JSON.parse(text.slice(index, end + 1)) as string;
          if (keys.has(key)) return key;
          keys.add(key);
        }
        expectKey = false;
        index = end;
        break;
      }
      default:
        break;
    }
  }
  return null;
}

/** Index of the quote that closes the string opened at `start`. */
function stringEnd(text: string, start: number): number {
  let index = start + 1;
  while (text[index] !== '"') index += text[index] === '\\' ? 2 : 1;
  return index;
}
