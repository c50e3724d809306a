import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { headFault } from '../../native/library-file.js';
import { nativeStatus } from '../../native/index.js';
import { packageRoot } from '../../shared/base/files/package-root.js';

const LINUX = process.platform === 'linux';

describe('the header check of a native library', () => {
  const library = readFileSync(nativeStatus().path);

  before(function () {
    if (!LINUX) this.skip();
  });

  it('accepts a whole library of this processor', () => {
    assert.equal(headFault(library.subarray(0, 16_384), library.length, process.arch), null);
  });

  it('recognizes a library of another processor', () => {
    const other = process.arch === 'x64' ? 'arm64' : 'x64';
    assert.match(headFault(library, library.length, other) ?? '', /of another processor/);
  });

  it('recognizes a file that is no library', () => {
    const text = readFileSync(join(packageRoot(), 'README.md'));
    assert.match(headFault(text, text.length, process.arch) ?? '', /no library/);
    assert.match(headFault(Buffer.alloc(0), 0, process.arch) ?? '', /no library/);
  });

  it('recognizes a truncated library, wherever it is cut before the end of its loaded part', () => {
    // The loaded part of the file is followed by tables that are not needed to run it.
    const loadedBytes = Math.floor(0.8 * library.length);
    fc.assert(
      fc.property(fc.integer({ min: 0, max: loadedBytes }), (size) => {
        const head = library.subarray(0, Math.min(size, 16_384));
        assert.notEqual(headFault(head, size, process.arch), null);
      }),
    );
  });
});
