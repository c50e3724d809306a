import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:tls';
import { joinPatiently, type JoinWay } from '../../engine/daemon/join-patiently.js';
import { EnrolmentConnection } from '../../engine/trust/enrolment-connection.js';
import { authorityReplySchema, ENROLMENT_PATHS } from '../../engine/trust/enrolment-messages.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { ENROLMENT_PROTOCOL, tlsOptions } from '../../shared/transport/trust/tls-options.js';
import { RUNTIME } from '../wall.js';
import { TestCluster } from './cluster-authority.js';
import { addressOf } from './refusing-main.js';
import { onVirtualClock } from './virtual-run.js';

interface Tries {
  readonly said: string[];
  /** When each try began, on the virtual clock. */
  readonly atMs: number[];
}

/** Joins in this way; the tries fail with these errors one after another, and then the daemon is in. */
function join(way: JoinWay, failures: readonly Error[], hasShown = false): Promise<Tries> {
  return onVirtualClock(async (runtime) => {
    const tries: Tries = { said: [], atMs: [] };
    const abandoned = new AbortController().signal;
    const say = (text: string): void => void tries.said.push(text);
    const work = async (shownMs: number[]): Promise<string> => {
      tries.atMs.push(runtime.nowMs());
      if (hasShown) shownMs.push(runtime.nowMs());
      const failure = failures[tries.atMs.length - 1];
      if (failure !== undefined) throw failure;
      return 'in';
    };
    assert.equal(await joinPatiently(way, work, { runtime, abandoned, say }), 'in');
    return tries;
  });
}

function failed(code: ErrorCode, words = 'no answer'): OdmoeError {
  return new OdmoeError(code, words);
}

describe('a daemon that is to be let in', () => {
  for (const code of ['NO_MAIN', 'TIMEOUT', 'QUEUE_FULL', 'REQUEST_SLOW'] as const) {
    it(`goes on with its token in words where main fails with ${code} for an hour`, async () => {
      const { said, atMs } = await join('token', Array<Error>(1800).fill(failed(code)));
      assert.deepEqual(said, [`this machine is not in yet: no answer [${code}]. It goes on trying`]);
      assert.equal(atMs.at(-1), 3_600_000);
    });

    it(`goes on with a code where main fails with ${code}, after a minute`, async () => {
      const { said, atMs } = await join('code', [failed(code)]);
      assert.deepEqual(said, [`this machine is not in yet: no answer [${code}]. It tries again in 1 min 0 s`]);
      assert.deepEqual(atMs, [0, 60_000]);
    });
  }

  it('says a new reason, and each reason once while it lasts', async () => {
    const failures = [failed('TIMEOUT'), failed('TIMEOUT'), failed('QUEUE_FULL', 'busy'), failed('TIMEOUT')];
    const { said } = await join('token', failures);
    assert.deepEqual(
      said.map((text) => /\[(\w+)\]/.exec(text)?.[1]),
      ['TIMEOUT', 'QUEUE_FULL', 'TIMEOUT'],
    );
  });

  it('shows three codes in ten minutes at most, also where nobody runs it as a service', async () => {
    const { atMs } = await join('code', Array<Error>(4).fill(failed('NO_MAIN')), true);
    assert.deepEqual(atMs.slice(0, 3), [0, 60_000, 120_000]);
    assert.ok((atMs[3] ?? 0) >= 600_000, atMs.join());
  });

  for (const code of ['JOIN_TOKEN_INVALID', 'TRUST_REFUSED', 'STORAGE_FULL', 'INTERNAL', 'CONFIG_INVALID'] as const) {
    it(`ends with ${code} of its own machine or of its token, unless it is a service without one`, async () => {
      for (const way of ['token', 'code'] as const) {
        await assert.rejects(join(way, [failed(code)]), { code });
      }
      assert.equal((await join('serviceCode', [failed(code)])).atMs.length, 2);
    });
  }

  it('ends with a defect', async () => {
    for (const way of ['token', 'code', 'serviceCode'] as const) {
      await assert.rejects(join(way, [new TypeError('defect')]), TypeError);
    }
  });

  it('ends when it is stopped', async () => {
    const stopping = onVirtualClock((runtime) => {
      const stop = new AbortController();
      const work = (): Promise<never> => {
        stop.abort();
        return Promise.reject(failed('CANCELLED'));
      };
      return joinPatiently('token', work, { runtime, abandoned: stop.signal, say: assert.fail });
    });
    await assert.rejects(stopping, { code: 'CANCELLED' });
  });

  for (const code of ['STORAGE_FULL', 'STORAGE_FAILED', 'PROCESS_LIMIT', 'INTERNAL'] as const) {
    it(`goes on where ${code} is of main, which may be mended`, async () => {
      const { said, atMs } = await join('token', [await mainsAnswer(code)]);
      assert.match(said[0] ?? '', /main's log says why/);
      assert.deepEqual(atMs, [0, 2000]);
    });
  }

  it('ends where main refuses its token', async () => {
    await assert.rejects(join('token', [await mainsAnswer('JOIN_TOKEN_INVALID')]), { code: 'JOIN_TOKEN_INVALID' });
  });
});

/** What a question throws that a main answers with this code. */
async function mainsAnswer(code: ErrorCode): Promise<Error> {
  const body = JSON.stringify({ error: { code, message: "main failed at this, and main's log says why" } });
  const http = createServer((_, response) => response.writeHead(500).end(body));
  const options = { ...tlsOptions(new TestCluster().member('main')), ALPNProtocols: [ENROLMENT_PROTOCOL] };
  const server = createTlsServer(options, (socket) => http.emit('connection', socket));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const connection = await EnrolmentConnection.open(addressOf(server), null, { runtime: RUNTIME });
  try {
    await connection.ask(ENROLMENT_PATHS.authority, null, authorityReplySchema);
    assert.fail('main answered');
  } catch (thrown) {
    assert.ok(thrown instanceof OdmoeError);
    return thrown;
  } finally {
    connection.close();
    server.close();
  }
}
