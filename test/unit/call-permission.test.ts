import assert from 'node:assert/strict';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { callRefusal, identityRefusal, servedWorkerRefusal } from '../../shared/transport/call-permission.js';
import { METHODS } from '../../shared/transport/methods.js';
import type { RpcServerOptions } from '../../shared/transport/transport.js';
import type { CertifiedCaller, PeerRole } from '../../shared/transport/trust/peer-role.js';
import { CALLERS, errorOf, everyMethod, NETWORK, ROLES } from './method-callers.js';
import { plainIdentity } from './plain-identity.js';
import { memoryWorld } from './transport-worlds.js';

const SILENT: Logger = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };
/** The error of each handler below: who gets it was allowed to call. */
const REACHED = new OdmoeError('QUEUE_FULL', 'the handler was reached');

function handlers(): Omit<RpcServerOptions, 'host' | 'port' | 'network' | 'log'> {
  const refuse = (): never => {
    throw REACHED;
  };
  const refuseReplies = async function* (): AsyncGenerator<never> {
    yield await Promise.reject(REACHED);
  };
  return {
    node: { identify: refuse, counts: refuse },
    worker: { serve: (stream) => stream.close(REACHED) },
    shadow: { serve: (stream) => stream.close(REACHED) },
    cluster: { join: refuse, status: refuse },
    keys: { renew: refuse },
    operator: {
      accept: refuse,
      createToken: refuse,
      listTokens: refuse,
      revokeToken: refuse,
      listNodes: refuse,
      removeNode: refuse,
      drain: refuse,
    },
    inference: { generate: refuseReplies },
    pack: { describe: refuse, manifest: refuseReplies, read: refuseReplies },
  };
}

async function reachedBy(caller: CertifiedCaller | null): Promise<string[]> {
  const reached: string[] = [];
  for (const [name, method] of everyMethod()) {
    const { servedBy } = method;
    const world = memoryWorld(caller, servedBy === 'any node' ? 'main' : servedBy);
    const options = { host: world.host, port: 0, network: NETWORK, log: SILENT, ...handlers() };
    const server = await world.server.serve(options);
    let code: ErrorCode | null | undefined;
    void errorOf(world.client, server.address, name, method).then((got) => (code = got?.code ?? null));
    await world.until(() => code !== undefined);
    if (code === REACHED.code) reached.push(name);
    else assert.equal(code, 'NOT_ALLOWED', name);
  }
  return reached.sort();
}

describe('call permission', () => {
  for (const role of ROLES) {
    it(`lets a ${role} call its methods and no others`, async () => {
      const allowed = Object.keys(CALLERS).filter((name) => CALLERS[name]?.includes(role));
      assert.deepEqual(await reachedBy({ cluster: 'test', role, id: 'x' }), allowed.sort());
    });
  }

  it('lets everybody call everything in a cluster without an authority', async () => {
    assert.deepEqual(await reachedBy(null), Object.keys(CALLERS).sort());
  });

  it('names the role of the caller and the roles that may call', () => {
    const { serve } = METHODS.shadow;
    const refusal = callRefusal(serve, { caller: { cluster: 'test', role: 'worker', id: 'jetson-2' } });
    assert.equal(
      refusal?.message,
      'worker "jetson-2" may not call /odmoe.v1.Shadow/Serve: its certificate must be of role main',
    );
  });

  it('refuses an identity whose id, role or cluster differs from the certificate', () => {
    const caller: CertifiedCaller = { cluster: 'test', role: 'worker', id: 'worker-1' };
    assert.equal(identityRefusal(plainIdentity(), { caller }), null);
    assert.equal(identityRefusal(plainIdentity({ id: 'other' }), { caller: null }), null);
    const differing = [
      { id: 'other' },
      { role: 'ROLE_MAIN' },
      { role: 'ROLE_UNSPECIFIED' },
      { cluster: 'work' },
    ] as const;
    for (const stated of differing) {
      const refusal = identityRefusal(plainIdentity(stated), { caller });
      assert.equal(refusal?.code, 'NOT_ALLOWED');
      assert.match(refusal.message, new RegExp(`states the ${Object.keys(stated)[0]} `));
    }
  });

  it('takes as a worker the worker of that id, and main for its own worker', () => {
    const certified = (role: PeerRole, id: string): CertifiedCaller => ({ cluster: 'test', role, id });
    assert.equal(servedWorkerRefusal('jetson-2', certified('worker', 'jetson-2')), null);
    assert.equal(servedWorkerRefusal('box-worker', certified('main', 'box')), null);
    assert.equal(servedWorkerRefusal('jetson-2', null), null);
    assert.equal(servedWorkerRefusal('jetson-2', certified('worker', 'jetson-3'))?.code, 'NOT_ALLOWED');
  });
});
