import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { OdmoeError } from '../errors/odmoe-error.js';

/** Directory of odmoe's own package.json, whether this file runs from source or from dist/. */
export function packageRoot(): string {
  const start = dirname(fileURLToPath(import.meta.url));
  for (let directory = start; ; directory = dirname(directory)) {
    if (existsSync(join(directory, 'package.json'))) return directory;
    if (dirname(directory) === directory) {
      throw new OdmoeError('INTERNAL', `no package.json above ${start}: the installation of odmoe is incomplete`);
    }
  }
}
