import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ListedMachineView, MachinesView, WaitingMachineView } from '../../shared/wire/cluster-machines.js';

/** The code that the first waiting machine shows. */
export const SAMPLE_CODE = '482913';
/** The key that opens a session of an operator. */
export const SAMPLE_OPERATOR_KEY = 'the-key-of-an-operator';

const SINCE_MS = Date.UTC(2026, 10, 25, 12);
const WORDS = 'amber fox lunar seven';
const WRONG_CODES = 3;
export const DRAIN_WORDS = 'is drained; others fetch 12.0 MB of its experts first, from it, too, as long as it runs';

export type SampleTrust = 'none' | 'plain' | 'without-keys' | 'operator';

/** The machines of an invented cluster, which a test lets in and removes. */
export class SampleMachines {
  private waiting: WaitingMachineView[] = [
    { id: 'jetson-2', role: 'worker', device: 'cuda sm_87', address: '192.168.1.21', waitedMs: 65_000 },
    {
      id: 'a'.repeat(63),
      role: 'shadow',
      device: 'x'.repeat(100),
      address: 'fe80::1234:5678:9abc:def0',
      waitedMs: 900,
    },
  ];
  private nodes: ListedMachineView[] = [
    { id: 'desk', role: 'main', device: 'cuda: RTX 3090', address: '192.168.1.10:7600', ...listed(true) },
    { id: 'orin-1', role: 'worker', device: 'cuda: Orin NX 16 GB', address: '192.168.1.21:7602', ...listed(true) },
    { id: 'b'.repeat(63), role: 'worker', device: '', address: '', ...listed(false) },
    { id: 'laptop', role: 'operator', device: '', address: '', ...listed(false) },
  ];
  /** A test makes main refuse drains. */
  refusesDrains = false;
  private wrongCodesLeft = WRONG_CODES;

  /** 'none': no authority. */
  constructor(public trust: SampleTrust) {}

  get waitingMachines(): number {
    return this.trust === 'none' ? 0 : this.waiting.length;
  }

  /** Answers a request to /cluster/machines. `path`: what stands behind that. */
  answer(method: string, path: string, body: string, response: ServerResponse): void {
    if (method === 'GET') return send(response, 200, this.view());
    if (this.trust !== 'operator') return sendError(response, 403, "only an operator's key may do this");
    if (path.endsWith('/drain')) return this.drain(path.split('/')[1] ?? '', method === 'POST', response);
    if (method === 'DELETE') return this.remove(decodeURIComponent(path.slice(1)), response);
    this.accept((JSON.parse(body) as { code: string }).code, response);
  }

  private view(): MachinesView {
    const { trust, waiting, nodes, wrongCodesLeft } = this;
    const mayChange = trust === 'operator';
    const rights = { mayChange, hasOperatorKey: trust !== 'without-keys' };
    if (trust === 'none') return { authority: null, ...rights, waiting: [], wrongCodesLeft: 0, nodes: [] };
    const authority = { cluster: 'home', words: WORDS };
    return { authority, ...rights, waiting: mayChange ? waiting : [], wrongCodesLeft, nodes };
  }

  private accept(code: string, response: ServerResponse): void {
    const [first] = this.waiting;
    if (first === undefined || code.replaceAll(' ', '') !== SAMPLE_CODE) {
      this.wrongCodesLeft -= 1;
      if (this.wrongCodesLeft === 0) {
        this.waiting = [];
        this.wrongCodesLeft = WRONG_CODES;
      }
      return sendError(response, 403, `no machine with the code ${code} waits`);
    }
    this.waiting = this.waiting.slice(1);
    const { id, role, device, address } = first;
    this.nodes = [...this.nodes, { id, role, device, address, ...listed(true) }];
    send(response, 200, { id, role, device, address, words: WORDS });
  }

  private drain(id: string, isDrained: boolean, response: ServerResponse): void {
    if (this.refusesDrains) return sendError(response, 400, `no node "${id}" is connected to main`);
    const drain = isDrained ? DRAIN_WORDS : '';
    this.nodes = this.nodes.map((node) => (node.id === id ? { ...node, drain } : node));
    if (isDrained) send(response, 200, { id, role: 'worker', state: 'may go', openExperts: 0, othersLackBytes: 0 });
    else response.writeHead(204).end();
  }

  private remove(id: string, response: ServerResponse): void {
    this.nodes = this.nodes.filter((node) => node.id !== id);
    response.writeHead(204).end();
  }
}

function listed(isConnected: boolean): Pick<ListedMachineView, 'sinceMs' | 'isConnected' | 'drain'> {
  return { sinceMs: SINCE_MS, isConnected, drain: '' };
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

function sendError(response: ServerResponse, status: number, message: string): void {
  send(response, status, { error: { message } });
}

/** The whole body of a request. */
export async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of request) chunks.push(chunk as Uint8Array);
  return Buffer.concat(chunks).toString();
}
