import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Metadata, status } from '@grpc/grpc-js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { ERROR_KINDS, type ErrorCode } from '../../shared/base/errors/registry.js';
import { isErrorCode, OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fromServiceError, toServiceError } from '../../shared/transport/rpc-errors.js';

const documented = readFileSync(join(packageRoot(), 'docs', 'errors.md'), 'utf8');
const codes = Object.keys(ERROR_KINDS) as ErrorCode[];

describe('the error table docs/errors.md', () => {
  it('has one row for each code of the registry, with its mappings, in its order', () => {
    const rows = [...documented.matchAll(/^\| *`(\w+)` *\| *(\d) *\| *(\w+) *\| *(\d+) *\| *(.*?) *\|$/gm)];
    const stated = rows.map(([, code, exitStatus, grpcStatus, httpStatus, meaning]) => ({
      code,
      exitStatus: Number(exitStatus),
      grpcStatus,
      httpStatus: Number(httpStatus),
      meaning,
    }));
    assert.deepEqual(
      stated,
      Object.entries(ERROR_KINDS).map(([code, kind]) => ({ code, ...kind })),
    );
  });

  it('gives an action for each code', () => {
    const advised = [...documented.matchAll(/^- `(\w+)`: \S/gm)].map(([, code]) => code);
    assert.deepEqual(advised, codes);
  });
});

describe('OdmoeError', () => {
  it('crosses RPC with its code, its message and the gRPC status of its kind', () => {
    for (const code of codes) {
      const sent = toServiceError(new OdmoeError(code, `about ${code}`));
      assert.equal(sent.code, status[ERROR_KINDS[code].grpcStatus], code);
      const received = fromServiceError(sent, { lostCode: 'NO_MAIN', servedBy: 'main' }, 'peer');
      assert.equal(received.code, code);
      assert.equal(received.message, `about ${code}`);
    }
  });

  it('crosses RPC on one line, as a second one could imitate words of ours', () => {
    const sent = toServiceError(new OdmoeError('TRUST_REFUSED', 'no\nodmoe: yes'));
    const received = fromServiceError(sent, { lostCode: 'NO_MAIN', servedBy: 'main' }, 'peer');
    assert.equal(received.message, 'no\\nodmoe: yes');
  });

  it('is told from the status of a refusal that comes without a code', () => {
    for (const [code, expected] of [
      [status.UNAUTHENTICATED, 'TRUST_REFUSED'],
      [status.PERMISSION_DENIED, 'NOT_ALLOWED'],
      [status.UNAVAILABLE, 'NO_MAIN'],
    ] as const) {
      const thrown = Object.assign(new Error(), { code, details: 'node w1 was removed', metadata: new Metadata() });
      const received = fromServiceError(thrown, { lostCode: 'NO_MAIN', servedBy: 'main' }, 'main');
      assert.equal(received.code, expected);
      assert.match(received.message, /main.*: node w1 was removed/);
    }
  });

  it('converts any thrown value, as INTERNAL unless it is one already', () => {
    const own = new OdmoeError('TIMEOUT', 'late');
    assert.equal(toOdmoeError(own), own);
    const cause = new TypeError('x is not a function');
    assert.equal(toOdmoeError(cause).code, 'INTERNAL');
    assert.equal(toOdmoeError(cause).cause, cause);
    assert.equal(toOdmoeError('text').message, 'text');
  });

  it('distinguishes its codes from other words', () => {
    assert.equal(isErrorCode('NO_MAIN'), true);
    for (const word of ['toString', 'NO_SUCH', '', null, 3]) assert.equal(isErrorCode(word), false);
  });
});
