// See who holds what, and take a lock away from somebody who is stuck.
import { Holdfast } from 'holdfast';

const billing = new Holdfast('memory:', { label: 'billing' });
const shipping = new Holdfast('memory:', { label: 'shipping' });
const operator = new Holdfast('memory:', { label: 'operator' });

const stuck = await billing.mutex('order:42').acquire();
stuck.signal.addEventListener('abort', () => console.log(`billing is told: ${stuck.signal.reason.reason}`));
const next = shipping.mutex('order:42').acquire({ label: 'parcel 7' });
await shipping.ready();

for await (const line of operator.inspect({ prefix: 'order:' })) {
  for (const { state, label } of line.claims) console.log(`${line.name} ${state}: ${label.split('@')[0]}`);
}

const { claims } = await operator.mutex('order:42').inspect();
console.log(`evicted: ${await operator.evict('order:42', claims[0].id, 'stuck since the deploy')}`);
console.log(`shipping holds it: ${(await next).held}`);

await Promise.all([billing.close(), shipping.close(), operator.close()]);

// Output:
// order:42 held: billing
// order:42 waiting: parcel 7
// billing is told: evicted
// evicted: true
// shipping holds it: true
