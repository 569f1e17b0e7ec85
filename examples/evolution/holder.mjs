// Ada in a process of her own, so that she can be killed and frozen as processes are. Her parent tells her what to do.
import { Holdfast } from 'holdfast';

const [url, name] = process.argv.slice(2);
const locks = new Holdfast(url, { ttl: '1s', label: 'ada' });
let lease;

const DOES = {
  acquire: async () => `${(lease = await locks.mutex(name).acquire()).token}`,
  held: () => lease.held,
  release: () => lease.release(),
};

process.on('message', (what) => void answer(what));
process.on('disconnect', () => process.exit());

async function answer(what) {
  process.send(await DOES[what]());
}
