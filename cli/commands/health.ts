import type { Command } from 'commander';
import type { Health } from '../../engine/daemon/health-socket.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { printableJson, printableLine } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { askHealth, daemonsOfHomes, healthHomes } from '../service/ask-health.js';

/** `odmoe health`: for the probes of containers and clusters of containers, and for scripts. */
export function registerHealthCommand(program: Command): void {
  program
    .command('health')
    .description('ask the daemons of this host whether they serve, without the network')
    .argument('[id]', 'only the daemon with this id')
    .option('--alive', 'a daemon that starts, or waits for main, is good enough', false)
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText(
      'after',
      `
Exit status 0: every daemon of this user and of the system's services on this host serves (with an id: that one does). 3: one does not,
or there is none. A daemon answers by a socket that only its own user can open, so ask as that user, or by sudo.

Examples:
  odmoe health
  odmoe health --alive
  sudo odmoe health worker-jetson-7602`,
    )
    .action(async (id: string | undefined, flags: HealthFlags) => health(id ?? null, flags));
}

interface HealthFlags {
  alive: boolean;
  json: boolean;
}

async function health(id: string | null, { alive, json }: HealthFlags): Promise<void> {
  const sockets = await daemonsOfHomes(healthHomes(), id);
  const daemons: Health[] = [];
  for (const { path } of sockets) {
    const answer = await askHealth(path);
    if (answer !== null) daemons.push(answer);
  }
  if (daemons.length === 0) {
    const which = id === null ? 'no daemon of odmoe that this user may ask' : `no daemon ${id} that this user may ask`;
    throw new OdmoeError(
      'DAEMON_NOT_SERVING',
      `${which} runs on this host: start it, or ask by sudo where it is another user's`,
    );
  }
  if (json) standardOutput.write(`${printableJson({ daemons })}\n`);
  else for (const daemon of daemons) standardOutput.write(`${healthLine(daemon)}\n`);
  const down = daemons.filter(({ phase }) => (alive ? phase === 'stopping' : phase !== 'serving'));
  if (down.length === 0) return;
  const list = down.map(healthLine).join('; ');
  throw new OdmoeError('DAEMON_NOT_SERVING', `${list}: wait, or see its log`);
}

function healthLine({ id, phase, words }: Health): string {
  return printableLine(`${id}  ${phase}: ${words}`);
}
