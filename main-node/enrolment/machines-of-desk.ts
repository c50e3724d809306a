import type { Machines } from '../../http-api/http-api-context.js';
import type { EnrolmentDesk } from './enrolment-desk.js';

/** The enrolment desk as the HTTP API sees it. `served`: where other machines may reach main; the address may change while main runs. */
export function machinesOfDesk(desk: EnrolmentDesk, served: Pick<Machines, 'machineAddress'>): Machines {
  const { cluster, words } = desk;
  return {
    cluster,
    words,
    get machineAddress() {
      return served.machineAddress;
    },
    waiting: () => desk.waitingMachines(),
    wrongCodesLeft: () => desk.wrongCodesLeft,
    nodes: () =>
      desk
        .listNodes()
        .filter(({ removed }) => removed === undefined)
        .map(({ id, role, since }) => ({ id, role, sinceMs: since })),
    accept: (code) => desk.accept(code),
    remove: (id) => desk.removeNode(id),
  };
}
