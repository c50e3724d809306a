import { z } from 'zod';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ListedMachineView, MachinesView } from '../../shared/wire/cluster-machines.js';
import { atHost } from '../../shared/wire/node-status.js';
import type { StatusReply } from '../../shared/wire/messages.js';
import { drainWords, othersLackBytes } from '../../shared/decisions/draining/drain-state.js';
import type { HttpApiContext, ListedMachine, Machines, RegisterRoutes } from '../http-api-context.js';

const BODY_LIMIT_BYTES = 4096;
const CODE_LENGTH_LIMIT = 32;
const BODY = z.strictObject({ code: z.string().max(CODE_LENGTH_LIMIT) });

/**
 * GET /cluster/machines for all keys; for operators: POST /cluster/machines/accept, DELETE /cluster/machines/ID, and drains. The log names the key that asked,
 * by the name of its client.
 */
export const registerMachines: RegisterRoutes = (app, context) => {
  const { machines, keys, log } = context;
  app.get('/cluster/machines', { config: { polled: true } }, ({ keyRole }, reply) => {
    const mayChange = keyRole === 'operator';
    const view = machinesView(context, { mayChange, hasOperatorKey: keys.hasOperator });
    return reply.header('cache-control', 'no-store').send(view);
  });
  app.post(
    '/cluster/machines/accept',
    { config: { operatorOnly: true }, bodyLimit: BODY_LIMIT_BYTES },
    async ({ body, account }, reply) => {
      const { data } = BODY.safeParse(body);
      if (data === undefined) {
        throw new OdmoeError('REQUEST_INVALID', 'the body must be {"code": "..."}, with the six digits of a machine');
      }
      const accepted = await requireMachines(machines).accept(data.code);
      const { id, role, device, address, words } = accepted;
      log.info('an operator let a machine in by HTTP', { by: account?.client, machine: id, role, address });
      return reply.send({ id, role, device, address, words });
    },
  );
  app.delete<{ Params: { id: string } }>(
    '/cluster/machines/:id',
    { config: { operatorOnly: true } },
    async ({ params: { id }, account }, reply) => {
      await requireMachines(machines).remove(id);
      log.info('an operator removed a machine by HTTP', { by: account?.client, machine: id });
      return reply.code(204).send();
    },
  );
  registerDrains(app, context);
};

/** For operators: POST and DELETE /cluster/machines/ID/drain. */
const registerDrains: RegisterRoutes = (app, context) => {
  const { log } = context;
  const path = '/cluster/machines/:id/drain';
  const config = { operatorOnly: true };
  app.post<{ Params: { id: string } }>(path, { config }, ({ params: { id }, account }, reply) => {
    const node = context.drain({ id, undo: false });
    log.info('an operator drained a node by HTTP', { by: account?.client, node: id });
    const lackedBytes = node === null ? null : othersLackBytes(context.status().nodes, node);
    return reply.send({ ...node, othersLackBytes: lackedBytes ?? 0 });
  });
  app.delete<{ Params: { id: string } }>(path, { config }, ({ params: { id }, account }, reply) => {
    context.drain({ id, undo: true });
    log.info('an operator gave a node work again by HTTP', { by: account?.client, node: id });
    return reply.code(204).send();
  });
};

function requireMachines(machines: Machines | null): Machines {
  if (machines !== null) return machines;
  throw new OdmoeError(
    'TRUST_REFUSED',
    'the cluster has no authority, so no machine waits and none can be removed: "odmoe cluster init" on the host of main makes one',
  );
}

function machinesView(
  context: HttpApiContext,
  rights: Pick<MachinesView, 'mayChange' | 'hasOperatorKey'>,
): MachinesView {
  const { machines } = context;
  if (machines === null) return { authority: null, ...rights, waiting: [], wrongCodesLeft: 0, nodes: [] };
  const { cluster, words, machineAddress } = machines;
  const status = context.status();
  const present = { ...status, nodes: status.nodes.map((node) => atHost(node, machineAddress)) };
  return {
    authority: { cluster, words },
    ...rights,
    waiting: rights.mayChange ? [...machines.waiting()] : [],
    wrongCodesLeft: machines.wrongCodesLeft(),
    nodes: machines.nodes().map((machine) => listedMachine(machine, present)),
  };
}

function listedMachine(
  { id, role, sinceMs }: ListedMachine,
  { nodes, drained = [] }: Pick<StatusReply, 'nodes' | 'drained'>,
): ListedMachineView {
  const connected = nodes.find(({ identity }) => identity.id === id);
  const { device = '', address = '' } = connected?.identity ?? {};
  const node = drained.find((each) => each.id === id);
  const drain = node === undefined ? '' : drainWords(node, othersLackBytes(nodes, node));
  return { id, role, sinceMs, isConnected: connected !== undefined, device, address, drain };
}
