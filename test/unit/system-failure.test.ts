import assert from 'node:assert/strict';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { readFailure } from '../../shared/base/files/read-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';

function systemError(code: string, more: object = {}): Error {
  return Object.assign(new Error(`${code}: as the system says it`), { code, ...more });
}

const ERRORS = { missing: 'MODEL_NOT_FOUND', invalid: 'MODEL_CORRUPT', remedy: 'give another' } as const;

describe('an error of the operating system', () => {
  for (const [code, expected] of [
    ['EMFILE', 'PROCESS_LIMIT'],
    ['ENFILE', 'PROCESS_LIMIT'],
    ['ENOMEM', 'PROCESS_LIMIT'],
    ['ERR_WORKER_OUT_OF_MEMORY', 'PROCESS_LIMIT'],
    ['ERR_WORKER_INIT_FAILED', 'PROCESS_LIMIT'],
    ['ENOSPC', 'STORAGE_FULL'],
    ['EDQUOT', 'STORAGE_FULL'],
    ['EFBIG', 'STORAGE_FAILED'],
    ['EACCES', 'STORAGE_FAILED'],
    ['EROFS', 'STORAGE_FAILED'],
    ['EIO', 'STORAGE_FAILED'],
    ['ELOOP', 'STORAGE_FAILED'],
    ['ENAMETOOLONG', 'STORAGE_FAILED'],
    ['EISDIR', 'STORAGE_FAILED'],
    ['ENOTDIR', 'STORAGE_FAILED'],
  ] as const) {
    it(`is reported in words, with a code and what to do: ${code}`, () => {
      const thrown = systemError(code, { path: '/data/pack', syscall: 'open' });
      const found = toOdmoeError(thrown);
      assert.equal(found.code, expected);
      assert.match(found.message, /^\/data\/pack: .+ \(.*as the system says it\); \S/);
      assert.equal(writeFailure(thrown, '/data/pack', null).code, expected);
      const absent = code === 'ENOTDIR';
      assert.equal(readFailure(thrown, '/data/pack', ERRORS).code, absent ? 'MODEL_NOT_FOUND' : expected);
    });
  }

  it('has one message for a full disk and another for the file size limit', () => {
    assert.match(
      writeFailure(systemError('ENOSPC'), '/x', 2 ** 30).message,
      /the disk is full .*1 GiB more are needed/,
    );
    const large = writeFailure(systemError('EFBIG'), '/x', 2 ** 30);
    assert.doesNotMatch(large.message, /full|free some space/);
    assert.match(large.message, /may not be so large.*ulimit -f/);
  });

  it('has a message for threads and processes that cannot be started', () => {
    assert.equal(toOdmoeError(systemError('EAGAIN', { syscall: 'spawn node', path: 'node' })).code, 'PROCESS_LIMIT');
    assert.match(toOdmoeError(new Error('Resource temporarily unavailable')).message, /ulimit -u/);
    assert.equal(toOdmoeError(new RangeError('Array buffer allocation failed')).code, 'PROCESS_LIMIT');
    assert.equal(toOdmoeError(new Error('std::bad_alloc')).code, 'PROCESS_LIMIT');
  });

  it('stays unchanged where it is unknown: it may be an internal error', () => {
    assert.equal(toOdmoeError(new TypeError('x is not a function')).code, 'INTERNAL');
    assert.equal(toOdmoeError(systemError('ENOENT')).code, 'INTERNAL', 'a code of files without a file');
    assert.equal(toOdmoeError(systemError('EACCES', { syscall: 'listen' })).code, 'INTERNAL');
    assert.equal(toOdmoeError('text').code, 'INTERNAL');
    const known = new OdmoeError('TIMEOUT', 'late');
    assert.equal(toOdmoeError(known), known);
  });
});
