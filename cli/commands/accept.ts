import type { Command } from 'commander';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { printableJson, printableLine } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { METHODS } from '../../shared/transport/methods.js';
import type { AcceptReply } from '../../shared/wire/messages.js';
import { addOperatorFlags, askOperator, type OperatorFlags } from '../client/ask-operator.js';

/** `odmoe accept`: lets a machine into the cluster that shows a code. */
export function registerAcceptCommand(program: Command): void {
  const command = program
    .command('accept')
    .description('let the machine into the cluster that shows this code')
    .argument('<code...>', 'the six digits that the machine shows');
  addOperatorFlags(command)
    .addHelpText(
      'after',
      `
A machine that is started as odmoe worker, odmoe shadow or odmoe up and is not in the cluster yet shows a code for ten minutes. Type it
off that machine's screen: a code that came in another way may be another machine's. Three wrong codes send every machine away that
waits. The four words are those of the cluster's authority; the machine shows the same ones.

Examples:
  odmoe accept 482913
  odmoe accept 482 913 --cluster home`,
    )
    .action(async (code: string[], flags: OperatorFlags) => {
      const accepted = await askOperator(flags, METHODS.operator.accept, { code: code.join(' ') });
      standardOutput.write(`${flags.json ? printableJson(snakeCaseKeys(accepted)) : acceptedLine(accepted)}\n`);
    });
}

function acceptedLine({ id, role, device, address, cluster, words }: AcceptReply): string {
  const machine = [role, device, address].filter((part) => part !== '').join(', ');
  return printableLine(`${id} (${machine}) is in "${cluster}".   words: ${words}`);
}
